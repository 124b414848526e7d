/* Vocabularies and tries, against linear searches. */
#include "src/text/models/vocabulary.h"

#include <stdio.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/text/models/trie.h"
#include "tests/test.h"

TEST(vocabularies_find_what_was_added)
{
    fsdp_vocabulary *v = NULL;
    char text[16];
    size_t length = 0;
    ASSERT_OK(fsdp_vocabulary_create(&v));
    ASSERT_INT(fsdp_vocabulary_find(v, "", 0), -1);
    ASSERT_INT(fsdp_vocabulary_size(v), 0);
    for (int i = 0; i < 5000; i++) {
        snprintf(text, sizeof text, "%d", i * 7);
        ASSERT_OK(fsdp_vocabulary_add(v, text, strlen(text), i * 2));
    }
    ASSERT_INT(fsdp_vocabulary_size(v), 9999);
    ASSERT_INT(fsdp_vocabulary_longest(v), 5);
    for (int i = 0; i < 35000; i++) {
        snprintf(text, sizeof text, "%d", i);
        ASSERT_INT(fsdp_vocabulary_find(v, text, strlen(text)), i % 7 ? -1 : i / 7 * 2);
    }
    ASSERT_STR(fsdp_vocabulary_text(v, 4, &length), "14");
    ASSERT_INT(length, 2);
    ASSERT(fsdp_vocabulary_text(v, 3, &length) == NULL);
    ASSERT(fsdp_vocabulary_text(v, 9999, &length) == NULL);
    ASSERT(fsdp_vocabulary_text(v, -1, &length) == NULL);
    fsdp_vocabulary_destroy(v);
    fsdp_vocabulary_destroy(NULL);
}

TEST(the_last_of_equal_texts_is_found)
{
    fsdp_vocabulary *v = NULL;
    size_t length;
    ASSERT_OK(fsdp_vocabulary_create(&v));
    ASSERT_OK(fsdp_vocabulary_add(v, "a\0b", 3, 1));
    ASSERT_OK(fsdp_vocabulary_add(v, "", 0, 0));
    ASSERT_OK(fsdp_vocabulary_add(v, "a\0b", 3, 2));
    ASSERT_INT(fsdp_vocabulary_find(v, "a\0b", 3), 2);
    ASSERT_INT(fsdp_vocabulary_find(v, "a", 1), -1);
    ASSERT_INT(fsdp_vocabulary_find(v, "", 0), 0);
    ASSERT_STR(fsdp_vocabulary_text(v, 1, &length), "a");
    ASSERT_INT(length, 3);
    ASSERT_ERROR(fsdp_vocabulary_add(v, "c", 1, 2), FSDP_ERR_FORMAT, "\"c\" both have the id 2");
    ASSERT_ERROR(fsdp_vocabulary_add(v, "c", 1, -1), FSDP_ERR_FORMAT, "\"c\" has the id -1");
    ASSERT_ERROR(fsdp_vocabulary_add(v, "c", 1, 1 << 24), FSDP_ERR_FORMAT, "16777216");
    ASSERT_INT(fsdp_vocabulary_find(v, "c", 1), -1);
    ASSERT_INT(fsdp_vocabulary_size(v), 3);
    ASSERT_OK(fsdp_vocabulary_add(v, "<0x0A>", 6, 9));
    ASSERT_INT(fsdp_vocabulary_byte_piece(v, 10), 9);
    ASSERT_INT(fsdp_vocabulary_byte_piece(v, 11), -1);
    fsdp_vocabulary_destroy(v);
}

TEST(fingerprints_differ)
{
    uint64_t prints[4];
    for (int i = 0; i < 4; i++) {
        fsdp_vocabulary *v = NULL;
        ASSERT_OK(fsdp_vocabulary_create(&v));
        ASSERT_OK(fsdp_vocabulary_add(v, i == 1 ? "b" : "a", 1, i == 2 ? 1 : 0));
        if (i == 3)
            ASSERT_OK(fsdp_vocabulary_add(v, "", 0, 1));
        prints[i] = fsdp_vocabulary_fingerprint(v);
        for (int k = 0; k < i; k++)
            ASSERT(prints[k] != prints[i]);
        fsdp_vocabulary_destroy(v);
    }
}

/* ---- tries ---- */

enum {
    KEYS = 3000
};

static char texts[KEYS][12];
static uint64_t state = 1;

static unsigned random_bits(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33);
}

/* Random strings over few or all bytes. */
static void make_keys(fsdp_trie_key *keys, unsigned letters)
{
    for (int i = 0; i < KEYS; i++) {
        keys[i] = (fsdp_trie_key){texts[i], 1 + random_bits() % sizeof texts[i], i};
        for (size_t k = 0; k < keys[i].length; k++)
            texts[i][k] = (char)(random_bits() % letters);
    }
}

/* Return the id of the last key that is `text` [length], or -1. */
static int32_t search(const fsdp_trie_key *keys, const char *text, size_t length)
{
    int32_t found = -1;
    for (int i = 0; i < KEYS; i++)
        if (keys[i].length == length && memcmp(keys[i].text, text, length) == 0 &&
            keys[i].id > found)
            found = keys[i].id;
    return found;
}

TEST(tries_find_all_beginnings_of_a_text)
{
    static const unsigned letters[] = {2, 5, 256};
    fsdp_trie_key *keys = fsdp_calloc(KEYS, sizeof *keys);
    ASSERT(keys);
    for (int round = 0; round < 3; round++) {
        fsdp_trie trie = {0};
        make_keys(keys, letters[round]);
        ASSERT_OK(fsdp_trie_create(keys, KEYS, &trie));
        for (int i = 0; i < 500; i++) {
            char text[14];
            uint32_t node = 0;
            for (size_t k = 0; k < sizeof text; k++)
                text[k] = (char)(random_bits() % letters[round]);
            if (i % 2)
                memcpy(text, keys[i].text, keys[i].length);
            for (size_t k = 0; k < sizeof text; k++) {
                node = fsdp_trie_child(&trie, node, (uint8_t)text[k]);
                ASSERT_INT(node ? trie.units[node].id : -1, search(keys, text, k + 1));
                if (!node)
                    break;
            }
        }
        fsdp_trie_fini(&trie);
    }
    fsdp_free(keys);
}

TEST(an_empty_trie_has_no_children)
{
    fsdp_trie trie = {0};
    ASSERT_OK(fsdp_trie_create(NULL, 0, &trie));
    for (int i = 0; i < 256; i++)
        ASSERT_INT(fsdp_trie_child(&trie, 0, (uint8_t)i), 0);
    fsdp_trie_fini(&trie);
    fsdp_trie_fini(&trie);
}

TEST(failing_allocations_are_reported)
{
    fsdp_trie_key *keys = fsdp_calloc(KEYS, sizeof *keys);
    ASSERT(keys);
    make_keys(keys, 256);
    fsdp_status status = FSDP_ERR_NOMEM;
    long n = 0;
    while (status == FSDP_ERR_NOMEM && n < 1000) {
        fsdp_trie trie = {0};
        fsdp_alloc_fail_at(++n);
        status = fsdp_trie_create(keys, KEYS, &trie);
        fsdp_alloc_fail_at(0);
        fsdp_trie_fini(&trie);
    }
    fsdp_free(keys);
    ASSERT_OK(status);
    ASSERT(n > 5);
}
