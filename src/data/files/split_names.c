/* See split_names.h. */
#include "src/data/files/split_names.h"

#include <stdbool.h>
#include <string.h>

#include "src/base/assert.h"

/* NON_WORDS_CHARS in datasets/data_files.py */
static const char separators[] = "-._ 0123456789";

/* Return true if one of `words`, which end with NULL, is a word of `name`. */
static bool has_word(const char *name, const char *const *words)
{
    while (*name) {
        const size_t length = strcspn(name, separators);
        for (size_t i = 0; words[i]; i++)
            if (length == strlen(words[i]) && strncmp(name, words[i], length) == 0)
                return true;
        name += length;
        name += strspn(name, separators);
    }
    return false;
}

static const char *const evaluation[] = {"eval", "evaluation", NULL};
static const char *const test[] = {"test", "testing", NULL};
static const char *const train[] = {"train", "training", NULL};

fsdp_split_kind fsdp_split_kind_of(const char *name)
{
    static const char *const validation[] = {"validation", "valid", "dev", "val", NULL};
    if (has_word(name, test) || has_word(name, evaluation))
        return FSDP_SPLIT_KIND_TEST;
    return has_word(name, validation) ? FSDP_SPLIT_KIND_VALIDATION : FSDP_SPLIT_KIND_TRAIN;
}

bool fsdp_split_is_evaluation(const char *name)
{
    return has_word(name, evaluation) && !has_word(name, test);
}

bool fsdp_split_is_named(const char *name, bool validation)
{
    const fsdp_split_kind kind = fsdp_split_kind_of(name);
    return validation ? kind == FSDP_SPLIT_KIND_VALIDATION
                      : kind == FSDP_SPLIT_KIND_TRAIN && has_word(name, train);
}

const char *fsdp_validation_name(size_t i)
{
    static const char *const names[] = {"validation", "valid", "val", "dev", "eval"};
    return i < FSDP_LENGTH(names) ? names[i] : NULL;
}
