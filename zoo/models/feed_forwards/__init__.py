"""Feed-forward sublayers other than dense ones: parts of the registry `FEED_FORWARDS`."""
