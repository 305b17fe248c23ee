"""What is called outside this process, or stands in for it: embedders, and the HTTP client under them."""
