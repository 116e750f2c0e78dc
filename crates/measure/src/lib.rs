//! Counters, histograms, statistics of gaps and rates, and the report
