/* Porter's stemmer (Porter 1980, "An algorithm for suffix stripping") with the extensions of NLTK,
 * which rouge_score uses with use_stemmer=True. */
#pragma once
#include <stddef.h>

/* Replace `word` [*length] by its stem, and set *length to the length of the stem, which is not
 * longer than the word. The word consists of lower-case ASCII letters and digits, and need not end
 * in NUL. The time is proportional to its length. */
void fsdp_porter_stem(char *word, size_t *length);
