/* Cleans WikiHow's texts in the same steps as Hugging Face's dataset script (wikihow.py: strip,
 * _filter_and_clean), followed by the tutorial's summarization_dataset.py (clean_text). */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* All functions work in place on NUL-terminated UTF-8, which only becomes shorter, and return the
 * new length. */

/* Python's str.strip() for ASCII white space. *text is set to the first byte that is kept. */
size_t fsdp_wikihow_strip(char **text, size_t length);
/* ".," -> "." */
size_t fsdp_wikihow_clean_summary(char *text, size_t length);
/* re.sub(r"[.]+[\n]+[,]", ".\n", text) */
size_t fsdp_wikihow_clean_article(char *text, size_t length);
/* Removes "Example of text:", "Example of Summary:", line ends, "``" and quotes, one after the
 * other. */
size_t fsdp_wikihow_clean_text(char *text, size_t length);

/* Whether a summary with this many characters is shorter than 0.75 of the article. */
bool fsdp_wikihow_is_summary(size_t summary_chars, size_t article_chars);
