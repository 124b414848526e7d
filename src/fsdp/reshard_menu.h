/* The value of Accelerate's fsdp_reshard_after_forward with fsdp_version 1, which is a strategy. */
#pragma once

/* An option whose choices are fsdp_sharding_strategy_choices has stored the name of strategy s as
 * -1 - s, and other values as they are. Return `value` or, if `text` is a strategy's number in
 * Accelerate's menu, "1" to "5", what its name would have been stored as. `text` may be NULL. */
int fsdp_reshard_of_menu(const char *text, int value);
