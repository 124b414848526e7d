/* Checks that a command does not replace, or write into, what it reads. */
#pragma once
#include <fsdp/base.h>

/* Return FSDP_ERR_INVALID if `to`, which will be written, is the existing file or folder `from` or
 * contains it. `to` need not exist. `verb` says what is done with `from`, such as "converted". */
FSDP_MUST_CHECK fsdp_status fsdp_check_not_replaced(const char *to, const char *from,
                                                    const char *verb);
/* Return the same error as fsdp_check_not_replaced(), and also an error if `to` exists inside the
 * folder `from`. A new file or folder may be written there, because it is no part of `from` yet. */
FSDP_MUST_CHECK fsdp_status fsdp_check_apart(const char *to, const char *from, const char *verb);
/* Return FSDP_ERR_INVALID if the folders `a` and `b`, which both will be written, are the same, or
 * if one is inside the other. They need not exist. `names` says what they are for. */
FSDP_MUST_CHECK fsdp_status fsdp_check_two_folders(const char *a, const char *b, const char *names);
