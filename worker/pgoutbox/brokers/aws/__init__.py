"""What SQS and SNS have in common, by aiobotocore."""
