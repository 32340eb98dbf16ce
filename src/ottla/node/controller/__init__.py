"""What a node has as a controller or observer: the quorum, the image, the controller's services."""
