"""Wang and Kitsuregawa: selection-join queries, one arriving row at a time, with and without PDFA."""
