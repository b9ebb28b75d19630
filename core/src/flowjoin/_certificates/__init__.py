"""Certificates and keys: what is wrong with them, what TLS is made of them, a certificate authority of our own."""
