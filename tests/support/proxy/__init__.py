"""Test doubles for the proxy: an upstream that records bytes, and clients that send whole
histories.
"""
