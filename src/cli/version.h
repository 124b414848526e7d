/* `fsdp --version`: how this program was built, and which cards it finds. `fsdp env` prints the
 * same and more. */
#pragma once
#include <stdio.h>

/* Print the version, the compiler, the instruction sets of this CPU, the cards, and the libraries.
 * For each optional library, the text says whether it was found when the program was built, or, if
 * it is loaded at run time, whether it was found now. */
void fsdp_print_version(FILE *to);
