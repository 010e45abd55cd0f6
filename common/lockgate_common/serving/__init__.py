"""gRPC servers whose calls hold no thread, and what every server does about callers that it does not know."""
