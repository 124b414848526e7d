/* Completion scripts of shells, made from the option tables. Each script is complete: the shell
 * does not start fsdp to complete a word. */
#pragma once
#include <fsdp/base.h>

#include "src/base/str.h"
#include "src/report/shell.h"

/* Append the completion script for one shell. After `fsdp launch`, the script also completes the
 * options of the command that launch starts. */
FSDP_MUST_CHECK fsdp_status fsdp_completion_bash(fsdp_str *out);
FSDP_MUST_CHECK fsdp_status fsdp_completion_zsh(fsdp_str *out);
FSDP_MUST_CHECK fsdp_status fsdp_completion_fish(fsdp_str *out);

/* Append the first sentence of a help text, for shells that show a line for each option. */
void fsdp_first_sentence(fsdp_str *out, const char *help);
