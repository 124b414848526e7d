/* See options_added.h. */
#include "src/options/options_added.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/options/options_parse.h"

/* Append the words of `flags` to words[0 .. n), and return the number of all words. The blanks in
 * `flags` become ends of strings. */
static int append_words(char **words, int n, char *flags)
{
    char *rest;
    for (char *word = strtok_r(flags, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        words[n++] = word;
    return n;
}

static fsdp_status parse_words(const fsdp_options *options, char **words, int n,
                               size_t target_bytes)
{
    fsdp_options *again;
    void *target = fsdp_calloc(1, target_bytes);
    if (!target)
        return fsdp_error_nomem();
    const fsdp_status status = fsdp_options_parse(options->given_spec, n, words, target, &again);
    if (status == FSDP_OK)
        fsdp_options_destroy(again);
    fsdp_free(target);
    return status;
}

fsdp_status fsdp_options_check_added(const fsdp_options *options, const char *flags,
                                     size_t target_bytes)
{
    const size_t n = (size_t)options->argc, most = n + strlen(flags) / 2 + 1;
    char *copy = fsdp_strdup(flags);
    char **words = fsdp_calloc(most, sizeof *words);
    fsdp_status status = copy && words ? FSDP_OK : fsdp_error_nomem();
    if (status == FSDP_OK) {
        memcpy(words, options->argv, n * sizeof *words);
        status = parse_words(options, words, append_words(words, (int)n, copy), target_bytes);
    }
    fsdp_free(words);
    fsdp_free(copy);
    return status;
}
