/* Chooses the compiled code that a card runs: see cards.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/tensor/cards.h"

/* `word` is an architecture, such as "sm_90a" or "compute_90". Return its compute capability times
 * 10 (90 in both examples), or -1 if the word is not an architecture. Set *suffix to the letter
 * after the number, or to 0 if there is no letter. */
static int read_capability(const char *word, size_t length, char *suffix)
{
    const char *digits = memchr(word, '_', length);
    char *end;
    if (!digits)
        return -1;
    const long value = strtol(digits + 1, &end, 10);
    *suffix = end < word + length ? *end : '\0';
    return (int)value;
}

/* Return true if a card of compute capability `capability` can run code built for `built_for`.
 * Compiled code runs on cards of the same major version whose minor version is not lower. With the
 * suffix "a" it runs only on cards of exactly the same version. PTX also runs on all later
 * versions. */
static bool runs_on(int built_for, char suffix, bool is_ptx, int capability)
{
    if (suffix == 'a')
        return built_for == capability;
    return built_for <= capability && (is_ptx || built_for / 10 == capability / 10);
}

void fsdp_card_choose_code(const char *codes, int capability, char code[FSDP_CARD_CODE_BYTES])
{
    int best = -1;
    *code = '\0';
    for (size_t length; *codes; codes += length + (codes[length] == ' ')) {
        char suffix = '\0';
        length = strcspn(codes, " ");
        const bool is_ptx = strncmp(codes, "compute_", 8) == 0;
        const int built_for = read_capability(codes, length, &suffix);
        const int rank = is_ptx ? built_for : 1000 + 2 * built_for + (suffix == 'a');
        if (built_for < 0 || !runs_on(built_for, suffix, is_ptx, capability) || rank <= best)
            continue;
        best = rank;
        snprintf(code, FSDP_CARD_CODE_BYTES, "%s%.*s", is_ptx ? "PTX of " : "", (int)length, codes);
    }
}
