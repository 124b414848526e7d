/* Lists what a shell needs to complete the options of a command: their names and their values. */
#pragma once
#include <fsdp/options.h>

#include "src/base/str.h"

typedef enum fsdp_value_kind {
    FSDP_VALUE_NONE,   /* a switch, which needs no value */
    FSDP_VALUE_TEXT,   /* a text that a shell cannot complete */
    FSDP_VALUE_WORDS,  /* one of the words that fsdp_option_words() appends */
    FSDP_VALUE_FILE,   /* a file or a folder */
    FSDP_VALUE_FOLDER, /* a folder */
} fsdp_value_kind;

/* A function that fsdp_options_visit() calls for each option. */
typedef void fsdp_option_visit_fn(const fsdp_option *option, void *arg);
/* Call `visit` with each option that --help shows, in the order of the tables, then with --help,
 * --config, --print-config and, if there is one, spec->config_alias. The row of --help that `visit`
 * gets has the words that a shell offers after --help: "all" and the words of the headings of
 * spec->table. These words are valid only during the call. */
void fsdp_options_visit(const fsdp_options_spec *spec, fsdp_option_visit_fn *visit, void *arg);

/* Append all flags of an option, each after a space: " --shuffle --no-shuffle -s". */
void fsdp_option_flags(const fsdp_option *option, fsdp_str *out);
/* Return what a shell may offer as the value of the option. The option's placeholder in --help,
 * such as FILE, decides between files, folders and other texts. */
fsdp_value_kind fsdp_option_value_kind(const fsdp_option *option);
/* Append the words that are allowed as the value of the option, each after a space. For a switch,
 * these are the words that may follow "--name=". Append nothing if the allowed values are not
 * words. */
void fsdp_option_words(const fsdp_option *option, fsdp_str *out);
/* Return what a shell may offer for a positional argument of the command. */
fsdp_value_kind fsdp_positional_kind(const fsdp_options_spec *spec);
