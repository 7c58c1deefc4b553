"""RabbitMQ, by aiormq."""
