// Google's own in-memory Pub/Sub server, until it is told to end.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"cloud.google.com/go/pubsub/pstest"
)

func main() {
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "usage: pstest PORT")
		os.Exit(2)
	}
	server := pstest.NewServerWithPort(port)
	fmt.Println(server.Addr)
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
	server.Close()
}
