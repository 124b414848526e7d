/* Cleans WikiHow's texts. The steps are those of Hugging Face's dataset script (wikihow.py: strip,
 * _filter_and_clean), then those of the FSDP tutorial (summarization_dataset.py: clean_text). */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* Except for the last one, these functions change UTF-8 text in place and return its new length.
 * The text ends with a NUL and never becomes longer. */

/* Like Python's str.strip() for ASCII white space. *text is set to the first byte that is kept. */
size_t fsdp_wikihow_strip(char **text, size_t length);
/* Replace ".," by ".". */
size_t fsdp_wikihow_clean_summary(char *text, size_t length);
/* Like Python's re.sub(r"[.]+[\n]+[,]", ".\n", text). */
size_t fsdp_wikihow_clean_article(char *text, size_t length);
/* Remove "Example of text:", "Example of Summary:", line ends, "``" and quotes, in this order. */
size_t fsdp_wikihow_clean_text(char *text, size_t length);

/* Is a summary shorter than 0.75 times its article, both counted in characters? */
bool fsdp_wikihow_is_summary(size_t summary_chars, size_t article_chars);
