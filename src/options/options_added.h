/* Tries flags before a program proposes them to its user. */
#pragma once
#include <fsdp/options.h>

/* Parse the command line of `options` again, with more flags at its end, and check it as
 * fsdp_options_parse() does. Nothing is changed.
 *
 * @param flags        words with blanks between them: "--bf16 --batch-size 4"; no word has a blank
 * @param target_bytes size of the struct that the options were parsed into
 * @return the errors of fsdp_options_parse(): FSDP_ERR_INVALID or FSDP_ERR_UNSUPPORTED if the
 *         program refuses the flags */
FSDP_MUST_CHECK fsdp_status fsdp_options_check_added(const fsdp_options *options, const char *flags,
                                                     size_t target_bytes);
