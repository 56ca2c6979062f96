"""Made-up labelled clustering problems, from which a judge of partitions learns."""
