/* Parses options of `fsdp train` for tests. */
#pragma once
#include <stdio.h>
#include <string.h>

#include "src/train_config/config.h"
#include "tests/test.h"

/* The options that were parsed last, which own the texts in the configuration. */
static fsdp_options *kept;

/* Parse "train", `before` and `line`, whose words are separated by spaces. */
static inline fsdp_status parse_line(fsdp_train_config *c, const char *before, const char *line)
{
    static char words[2048];
    char *argv[64], *rest = words;
    int argc = 0;
    snprintf(words, sizeof words, "train %s %s", before, line);
    for (char *word; (word = strsep(&rest, " "));)
        if (*word)
            argv[argc++] = word;
    argv[argc] = NULL;
    fsdp_options_destroy(kept);
    kept = NULL;
    return fsdp_options_parse(fsdp_train_options(), argc, argv, c, &kept);
}

/* Parse "train", `line`, and what every training needs, unless the line gives it by another name.
 */
static inline fsdp_status parse(fsdp_train_config *c, const char *line)
{
    char before[100];
    snprintf(before, sizeof before, "%s%s%s",
             strstr(line, "--model_name_or_path") ? "" : "--model m ",
             strstr(line, "--train_file") || strstr(line, "--data ") || strstr(line, "--data=")
                 ? ""
                 : "--data d.csv ",
             strstr(line, "--output_dir") ? "" : "--output out");
    return parse_line(c, before, line);
}
