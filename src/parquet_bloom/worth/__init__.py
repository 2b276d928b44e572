"""What filters are worth: engines tested, queries measured, advice before a byte is written."""
