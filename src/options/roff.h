/* Pages of the manual, in roff with the macros of man(7). The functions take plain text. They
 * escape what roff would interpret, and break long lines, because checkers of manual pages want
 * lines of at most 80 bytes. */
#pragma once
#include <fsdp/options.h>

#include "src/base/str.h"

/* Append `text` so that roff prints it as it is. The text must not contain a newline. */
void fsdp_roff_escape(fsdp_str *out, const char *text);
/* Append `text` as lines that roff joins and fills. Each newline in `text` begins a new line of the
 * output. The appended text ends with a newline. */
void fsdp_roff_text(fsdp_str *out, const char *text);
/* Append `text`, which has several lines, as an example: not filled, in a font of fixed width. */
void fsdp_roff_example(fsdp_str *out, const char *text);
/* Append the heading of a section, such as "EXIT STATUS". */
void fsdp_roff_section(fsdp_str *out, const char *title);
/* Append an item: a tag in bold letters and the text that explains it. */
void fsdp_roff_item(fsdp_str *out, const char *tag, const char *text);

/* Append the options that --help shows, under the same headings. Unlike --help, this also says
 * which numbers are in range. It also names the environment variable of an option if that name is
 * not derived from the option's name. */
void fsdp_roff_options(fsdp_str *out, const fsdp_options_spec *spec);
