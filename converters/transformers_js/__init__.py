"""Exports that transformers.js runs, in browsers and in Node: graphs, and the configuration of a class that it has."""
