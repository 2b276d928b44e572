"""Tests of key indexes."""
