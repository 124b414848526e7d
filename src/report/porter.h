/* Porter's stemmer (Porter 1980, "An algorithm for suffix stripping") with the extensions of NLTK,
 * which rouge_score uses with use_stemmer=True. */
#pragma once
#include <stddef.h>

/* Replace a word of lower-case ASCII letters and digits [*length] by its stem, which is not longer.
 * The word need not end in NUL. The time is proportional to the length. */
void fsdp_porter_stem(char *word, size_t *length);
