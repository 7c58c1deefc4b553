"""The walk of a message, in reading order.

wakeup -> claim -> publish -> decide (retry) -> finalize, with renew and sweep beside it;
loop turns the wheel, drain stops it.
"""
