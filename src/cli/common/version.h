/* `fsdp --version`: how this program was built, and which cards it finds. `fsdp env` prints these
 * facts and more. */
#pragma once
#include <stdio.h>

#include "src/cli/common/facts.h"

/* Print the version, the compiler, the instruction sets of this CPU, the cards, and the libraries.
 * The text also says for each optional library whether it was found: when the program was built, or
 * now if the library is loaded at run time. */
void fsdp_print_version(FILE *to);
/* Add the facts that fsdp_print_version() prints to `to`. */
void fsdp_add_version(fsdp_facts *to);
/* Return the flags with which this program was compiled: "-O2 -g, kernels -O3". */
const char *fsdp_build_flags(void);
