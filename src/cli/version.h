/* `fsdp --version`: how this program was built. */
#pragma once
#include <stdio.h>

/* Print the version, the compiler, the instruction sets of this CPU, and the libraries. For each
 * optional library, the text says whether it was found when the program was built. */
void fsdp_print_version(FILE *to);
