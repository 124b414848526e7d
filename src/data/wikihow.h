/* The cleaning of WikiHow's texts, step by step as Hugging Face's dataset script (wikihow.py:
 * strip, _filter_and_clean) and then the tutorial's summarization_dataset.py (clean_text) do it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* All work in place on NUL-terminated UTF-8, which only gets shorter; the result's length. */

/* Python's str.strip() over ASCII white space; *text moves to the first byte that stays. */
size_t fsdp_wikihow_strip(char **text, size_t length);
/* ".," -> "." */
size_t fsdp_wikihow_clean_summary(char *text, size_t length);
/* re.sub(r"[.]+[\n]+[,]", ".\n", text) */
size_t fsdp_wikihow_clean_article(char *text, size_t length);
/* Without "Example of text:", "Example of Summary:", line ends, "``" and quotes, one after the
 * other. */
size_t fsdp_wikihow_clean_text(char *text, size_t length);

/* Is a summary of so many characters shorter than 0.75 of the article? */
bool fsdp_wikihow_is_summary(size_t summary_chars, size_t article_chars);
