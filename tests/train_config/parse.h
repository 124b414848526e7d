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

static inline fsdp_status parse(fsdp_train_config *c, const char *line)
{
    return parse_line(c, "--model m --data d.csv --output out", line);
}
