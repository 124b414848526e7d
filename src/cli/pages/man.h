/* Pages of the manual, made from the option tables: fsdp(1), fsdp-train(1), ... */
#pragma once
#include "src/cli/pages/command_pages.h"

/* Print the page of a command, of its subcommand, or of `fsdp` if `command` is NULL, in roff.
 * Returns FSDP_ERR_INVALID if the command does not exist. */
FSDP_MUST_CHECK fsdp_status fsdp_man_print(const char *command, const char *subcommand);
/* Write all pages as files of the folder `dir`, which is made if it does not exist. */
FSDP_MUST_CHECK fsdp_status fsdp_man_write_all(const char *dir);
