"""Proves before a freeze that each finding which the gates can give is within reach of some evidence.

A rule that nothing can miss shows nothing by being met, and one that nothing can meet blocks whatever is measured. Both
would come out once everything has been paid for. So evidence of whole campaigns is made up from the protocol alone,
among it such as just meets and just misses each rule, and the very acceptance program that is about to be frozen
judges it. `values` chooses the numbers, `fixtures` makes evidence of them, `variants` lists what is tried and
what must come of it, `check` tries it.
"""
