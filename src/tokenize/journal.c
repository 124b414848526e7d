/* See journal.h. */
#include "src/tokenize/journal.h"

#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/tokenize/identity.h"

enum {
    VERSION = 1
};

static const char *const list_keys[FSDP_SPOOLED_LISTS] = {"input_ids", "labels", "token_type_ids",
                                                          "position_ids"};

static void put_state(fsdp_json_node root, const fsdp_tokenize_state *state)
{
    fsdp_json_set_i64(root, "version", VERSION);
    fsdp_json_set_i64(root, "records", state->records);
    fsdp_json_set_i64(root, "text_bytes", state->text_bytes);
    fsdp_json_set_i64(root, "cut_rows", state->cut_rows);
    fsdp_json_set_i64(root, "cut_tokens", state->cut_tokens);
    fsdp_json_set_i64(root, "special_rows", state->special_rows);
    fsdp_json_set_str(root, "special", state->special);
    fsdp_json_set_i64(root, "unknown_rows", state->unknown_rows);
    fsdp_json_set_str(root, "unknown", state->unknown);
    const fsdp_json_node examples = fsdp_json_set_array(root, "unknown_examples");
    for (int i = 0; i < FSDP_UNKNOWN_EXAMPLES && *state->unknown_examples.items[i]; i++)
        fsdp_json_append_str(examples, state->unknown_examples.items[i]);
    fsdp_json_set_i64(root, "masked_rows", state->masked_rows);
    fsdp_json_set_i64(root, "empty_rows", state->empty_rows);
    fsdp_json_set_i64(root, "uses", (int64_t)state->uses);
    fsdp_json_set_bool(root, "is_complete", state->is_complete);
    fsdp_json_set_bool(root, "overwrites", state->overwrites);
    const fsdp_json_node lists = fsdp_json_set_object(root, "lists");
    for (int i = 0; i < FSDP_SPOOLED_LISTS; i++)
        fsdp_json_set_bool(lists, list_keys[i], state->lists[i]);
    const fsdp_json_node parts = fsdp_json_set_array(root, "parts");
    for (int i = 0; i < FSDP_TOKENIZE_PARTS; i++) {
        const fsdp_json_node part = fsdp_json_append_object(parts);
        fsdp_json_set_i64(part, "rows", state->parts[i].rows);
        fsdp_json_set_i64(part, "tokens", state->parts[i].tokens);
        fsdp_json_set_i64(part, "bytes", state->parts[i].bytes);
    }
}

fsdp_status fsdp_journal_write(const char *path, fsdp_json_node settings,
                               const fsdp_tokenize_state *state)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_create(path, &doc));
    put_state(fsdp_json_root(doc), state);
    fsdp_json_set_shared(fsdp_json_root(doc), "settings", settings);
    const fsdp_status status = fsdp_json_write(doc, FSDP_JSON_LINE, path);
    fsdp_json_destroy(doc);
    return status;
}

/* Read the number of rows with unknown characters, the place of the first of them, and the
 * examples. Journals of older versions do not have these keys. */
static fsdp_status get_unknown(fsdp_json_node root, fsdp_tokenize_state *state)
{
    const char *text;
    FSDP_TRY(fsdp_json_opt_i64(root, "unknown_rows", 0, INT64_MAX, 0, &state->unknown_rows));
    FSDP_TRY(fsdp_json_opt_str(root, "unknown", "", &text));
    snprintf(state->unknown, sizeof state->unknown, "%s", text);
    const fsdp_json_node list = fsdp_json_find(root, "unknown_examples");
    for (size_t i = 0; i < FSDP_UNKNOWN_EXAMPLES && i < fsdp_json_len(list); i++) {
        FSDP_TRY(fsdp_json_get_str(fsdp_json_at(list, i), NULL, &text));
        snprintf(state->unknown_examples.items[i], FSDP_UNKNOWN_BYTES, "%s", text);
    }
    return FSDP_OK;
}

static fsdp_status get_state(fsdp_json_node root, fsdp_tokenize_state *state)
{
    const struct {
        const char *key;
        int64_t *value;
    } numbers[] = {{"records", &state->records},         {"text_bytes", &state->text_bytes},
                   {"cut_rows", &state->cut_rows},       {"cut_tokens", &state->cut_tokens},
                   {"masked_rows", &state->masked_rows}, {"empty_rows", &state->empty_rows}};
    int64_t version, uses;
    const char *special;
    fsdp_json_node lists;
    FSDP_TRY(fsdp_json_get_i64(root, "version", VERSION, VERSION, &version));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        FSDP_TRY(fsdp_json_get_i64(root, numbers[i].key, 0, INT64_MAX, numbers[i].value));
    /* journals of older versions do not have these two keys */
    FSDP_TRY(fsdp_json_opt_i64(root, "special_rows", 0, INT64_MAX, 0, &state->special_rows));
    FSDP_TRY(fsdp_json_opt_str(root, "special", "", &special));
    snprintf(state->special, sizeof state->special, "%s", special);
    FSDP_TRY(get_unknown(root, state));
    FSDP_TRY(fsdp_json_get_i64(root, "uses", 0, UINT32_MAX, &uses));
    state->uses = (unsigned)uses;
    FSDP_TRY(fsdp_json_get_bool(root, "is_complete", &state->is_complete));
    FSDP_TRY(fsdp_json_opt_bool(root, "overwrites", false, &state->overwrites));
    FSDP_TRY(fsdp_json_get_object(root, "lists", &lists));
    for (int i = 0; i < FSDP_SPOOLED_LISTS; i++)
        FSDP_TRY(fsdp_json_get_bool(lists, list_keys[i], &state->lists[i]));
    return FSDP_OK;
}

static fsdp_status get_parts(fsdp_json_node root, fsdp_tokenize_state *state)
{
    fsdp_json_node parts;
    FSDP_TRY(fsdp_json_get_array(root, "parts", &parts));
    for (size_t i = 0; i < FSDP_TOKENIZE_PARTS; i++) {
        const fsdp_json_node part = fsdp_json_at(parts, i);
        FSDP_TRY(fsdp_json_get_i64(part, "rows", 0, INT64_MAX, &state->parts[i].rows));
        FSDP_TRY(fsdp_json_get_i64(part, "tokens", 0, INT64_MAX, &state->parts[i].tokens));
        FSDP_TRY(fsdp_json_get_i64(part, "bytes", 0, INT64_MAX, &state->parts[i].bytes));
    }
    return FSDP_OK;
}

/* Return true if the setting `key` had no effect on any row. This is known only after all rows have
 * been read. Before that, the result is false. */
static bool had_no_effect(const fsdp_tokenize_state *state, const char *key)
{
    const unsigned uses = fsdp_tokenize_setting_uses(key);
    return state->is_complete && uses && !(state->uses & uses);
}

/* Return an error if a setting of this run, `settings`, differs from the one in the journal `root`,
 * unless the setting had no effect. */
static fsdp_status compare_settings(const char *path, fsdp_json_node root,
                                    const fsdp_tokenize_state *state, fsdp_json_node settings)
{
    fsdp_json_node old;
    FSDP_TRY(fsdp_json_get_object(root, "settings", &old));
    for (fsdp_json_node v = fsdp_json_first(settings); v.value; v = fsdp_json_next(v)) {
        const char *now, *then;
        FSDP_TRY(fsdp_json_get_str(v, NULL, &now));
        FSDP_TRY(fsdp_json_opt_str(old, v.key, "", &then));
        if (strcmp(now, then) != 0 && !had_no_effect(state, v.key))
            return fsdp_error(FSDP_ERR_INVALID,
                              "%s: the interrupted run had another %s, \"%.200s\" and not "
                              "\"%.200s\": --resume needs the same; --overwrite begins again",
                              path, v.key, then, now);
    }
    return FSDP_OK;
}

fsdp_status fsdp_journal_read(const char *path, fsdp_json_node settings, fsdp_tokenize_state *state)
{
    fsdp_json *doc;
    fsdp_tokenize_state found = {0};
    FSDP_TRY(fsdp_json_read(path, &doc));
    const fsdp_json_node root = fsdp_json_root(doc);
    fsdp_status status = get_state(root, &found);
    if (status == FSDP_OK)
        status = get_parts(root, &found);
    if (status == FSDP_OK)
        status = compare_settings(path, root, &found, settings);
    fsdp_json_destroy(doc);
    if (status == FSDP_ERR_NOT_FOUND)
        status = FSDP_ERR_FORMAT;
    if (status == FSDP_OK)
        *state = found;
    return status;
}
