"""The scaling experiment: how errors fall with the number of training rows and with the width of the network."""
