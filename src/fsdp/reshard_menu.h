/* Translates the value of Accelerate's fsdp_reshard_after_forward. With fsdp_version 1, this value
 * is a sharding strategy. */
#pragma once

/* For fsdp_version 1: return what the user's text for this option means. The option parser has
 * already translated `text` to `value`. If `text` is the name of a strategy, `value` is
 * `-1 - strategy`. If `text` is a number, `value` is this number, as a number of ranks. But with
 * fsdp_version 1, "1" to "5" are the numbers of strategies in Accelerate's menu. So if `text` is
 * one of these numbers, return `-1 - strategy`. Otherwise return `value`. `text` may be NULL. */
int fsdp_reshard_of_menu(const char *text, int value);
