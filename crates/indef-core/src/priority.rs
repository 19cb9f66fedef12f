//! IODP, and the ordered tree of a file (InDeF §II-A eq. 2, §III-A).
