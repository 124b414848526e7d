/* Cleans WikiHow's texts. The steps are those of Hugging Face's dataset script (wikihow.py: strip,
 * _filter_and_clean), then those of the FSDP tutorial (summarization_dataset.py: clean_text). */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* All functions except fsdp_wikihow_is_summary() change a UTF-8 text in place and return its new
 * length. The text ends with a NUL and never becomes longer. */

/* Replace CRLF and CR by LF, as Python does when it opens a text file. */
size_t fsdp_wikihow_line_ends(char *text, size_t length);
/* Do the same as Python's str.strip(), but for ASCII white space only. Set *text to the first byte
 * of the result. */
size_t fsdp_wikihow_strip(char **text, size_t length);
/* Replace ".," by ".". */
size_t fsdp_wikihow_clean_summary(char *text, size_t length);
/* Do the same as Python's re.sub(r"[.]+[\n]+[,]", ".\n", text). */
size_t fsdp_wikihow_clean_article(char *text, size_t length);
/* Remove "Example of text:", "Example of Summary:", line ends, "``" and quotes, in this order. */
size_t fsdp_wikihow_clean_text(char *text, size_t length);

/* Return true if the summary is shorter than 0.75 times the article. Both are counted in
 * characters. */
bool fsdp_wikihow_is_summary(size_t summary_chars, size_t article_chars);
