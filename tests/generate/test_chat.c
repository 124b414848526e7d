/* Stop strings, texts that are shown while they are generated, and conversations as prompts. The
 * tokenizer is that of tests/fixtures/chat, a byte-level BPE. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/generate/chat_prompt.h"
#include "src/generate/stop_strings.h"
#include "src/generate/text_stream.h"
#include "src/text/chars/utf8.h"
#include "tests/test.h"

static fsdp_tokenizer *open_tokenizer(fsdp_test *t)
{
    fsdp_tokenizer *tokenizer = NULL;
    const fsdp_status status = fsdp_tokenizer_open(fsdp_test_path("fixtures/chat"), &tokenizer);
    if (status != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return tokenizer;
}

/* --- stop strings --- */

/* Return the index of the id of `text` that completes a stop string, or -1. */
static int first_stop(fsdp_test *t, const fsdp_tokenizer *tokenizer, const char *text,
                      const char *stop_a, const char *stop_b)
{
    fsdp_rule_texts texts = {.n_bytes = 0};
    fsdp_stop_strings stop;
    fsdp_token_list ids = {0};
    int found = -1;
    fsdp_status status = fsdp_rule_texts_add(&texts, stop_a, strlen(stop_a));
    if (status == FSDP_OK && stop_b)
        status = fsdp_rule_texts_add(&texts, stop_b, strlen(stop_b));
    if (status == FSDP_OK)
        status = fsdp_stop_strings_init(&stop, tokenizer, &texts);
    if (status == FSDP_OK)
        status = fsdp_tokenizer_encode_text(tokenizer, text, strlen(text), 0, &ids);
    for (size_t i = 0; status == FSDP_OK && i < ids.len && found < 0; i++) {
        bool ends;
        status = fsdp_stop_strings_check(&stop, ids.ids, i, ids.ids[i], &ends);
        if (status == FSDP_OK && ends)
            found = (int)i;
    }
    fsdp_token_list_fini(&ids);
    if (status != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return found;
}

/* Return the text of the ids up to the one that completes the stop string. */
static void check_stop(fsdp_test *t, const char *text, const char *stop, const char *other,
                       const char *want)
{
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    fsdp_token_list ids = {0};
    char *kept = NULL;
    const int end = first_stop(t, tokenizer, text, stop, other);
    if (want) {
        ASSERT(end >= 0);
        ASSERT_OK(fsdp_tokenizer_encode_text(tokenizer, text, strlen(text), 0, &ids));
        ASSERT_OK(fsdp_tokenizer_decode(tokenizer, ids.ids, (size_t)end + 1, 0, &kept));
        ASSERT_STR(kept, want);
    } else {
        ASSERT_INT(end, -1);
    }
    fsdp_text_free(kept);
    fsdp_token_list_fini(&ids);
    fsdp_tokenizer_close(tokenizer);
}

TEST(a_sequence_ends_with_the_token_that_completes_a_stop_string)
{
    check_stop(t, "xq zj! done", "zj", NULL, "xq zj");
    check_stop(t, "xq zj! done", "q z", NULL, "xq z");
    check_stop(t, "xq zj! done", "nothing", "j!", "xq zj!");
    check_stop(t, "xq zj! done", "zjd", NULL, NULL);
    /* a character of several tokens ends with its last byte */
    check_stop(t, "xq \xF0\x9F\x98\x80zj", "\xF0\x9F\x98\x80", NULL, "xq \xF0\x9F\x98\x80");
    /* the stop string is a special token */
    check_stop(t, "xq</s>zj", "</s>", NULL, "xq</s>");
}

/* "er" is one token: a stop string that ends within a token ends the sequence with the whole
 * token. */
TEST(a_token_that_goes_beyond_a_stop_string_stays_whole)
{
    check_stop(t, "xq ther zj", " the", "zzz", "xq ther");
    check_stop(t, "xq user_id zj", "us", NULL, "xq user");
}

/* Ids that have no text are between the two tokens that complete the stop string. */
TEST(ids_without_a_text_do_not_hide_a_stop_string)
{
    enum {
        UNKNOWN = 20
    };
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    fsdp_rule_texts texts = {.n_bytes = 0};
    fsdp_stop_strings stop;
    fsdp_token_list ids = {0};
    int32_t all[UNKNOWN + 10];
    bool ends;
    ASSERT_OK(fsdp_rule_texts_add(&texts, "j!", 2));
    ASSERT_OK(fsdp_stop_strings_init(&stop, tokenizer, &texts));
    ASSERT_OK(fsdp_tokenizer_encode_text(tokenizer, "xq zj!", 6, 0, &ids));
    ASSERT(ids.len > 2 && ids.len < 10);
    const size_t n = ids.len - 1;
    memcpy(all, ids.ids, n * sizeof *all);
    for (size_t i = 0; i < UNKNOWN; i++)
        all[n + i] = 1000000;
    ASSERT_OK(fsdp_stop_strings_check(&stop, all, n + UNKNOWN, ids.ids[n], &ends));
    ASSERT(ends);
    ASSERT_OK(fsdp_stop_strings_check(&stop, all, n + UNKNOWN, ids.ids[0], &ends));
    ASSERT(!ends);
    fsdp_token_list_fini(&ids);
    fsdp_tokenizer_close(tokenizer);
}

TEST(stop_strings_need_a_tokenizer_and_are_not_empty)
{
    fsdp_rule_texts texts = {.n_bytes = 0};
    fsdp_stop_strings stop;
    ASSERT_INT(fsdp_rule_texts_add(&texts, "", 0), FSDP_ERR_INVALID);
    ASSERT_OK(fsdp_stop_strings_init(&stop, NULL, &texts));
    ASSERT_OK(fsdp_rule_texts_add(&texts, "a", 1));
    ASSERT_INT(fsdp_stop_strings_init(&stop, NULL, &texts), FSDP_ERR_INVALID);
    ASSERT(strstr(fsdp_last_error(), "tokenizer"));
    while (texts.n_bytes + 9 < FSDP_MAX_STOP_BYTES)
        ASSERT_OK(fsdp_rule_texts_add(&texts, "12345678", 8));
    ASSERT_INT(fsdp_rule_texts_add(&texts, "123456789", 9), FSDP_ERR_UNSUPPORTED);
}

/* --- streams --- */

typedef struct parts {
    fsdp_str text;
    size_t n;
    bool broken; /* a part was not UTF-8 by itself */
} parts;

static fsdp_status take_part(void *arg, const char *text, size_t bytes)
{
    parts *p = arg;
    p->broken |= fsdp_utf8_valid_length(text, bytes) != bytes;
    p->n++;
    fsdp_str_append(&p->text, text, bytes);
    return FSDP_OK;
}

static void check_stream(fsdp_test *t, const fsdp_tokenizer *tokenizer, const int32_t *ids,
                         size_t n)
{
    fsdp_text_stream stream;
    parts p = {0};
    char *want;
    fsdp_text_stream_init(&stream, tokenizer);
    for (size_t i = 0; i < n; i++)
        ASSERT_OK(fsdp_text_stream_add(&stream, ids[i], take_part, &p));
    ASSERT_OK(fsdp_text_stream_end(&stream, take_part, &p));
    ASSERT_OK(fsdp_tokenizer_decode(tokenizer, ids, n,
                                    FSDP_DECODE_SKIP_SPECIAL | FSDP_DECODE_SKIP_UNKNOWN, &want));
    ASSERT_STR(p.text.data ? p.text.data : "", want);
    ASSERT(!p.broken);
    fsdp_text_free(want);
    fsdp_str_fini(&p.text);
    fsdp_text_stream_fini(&stream);
}

TEST(the_parts_of_a_stream_are_the_text)
{
    static const char text[] = "Hello, na\xC3\xAFve \xF0\x9F\x98\x80\xE4\xBD\xA0</s> user_id\n  x";
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    fsdp_token_list ids = {0};
    ASSERT_OK(fsdp_tokenizer_encode_text(tokenizer, text, strlen(text), 0, &ids));
    check_stream(t, tokenizer, ids.ids, ids.len);
    fsdp_token_list_fini(&ids);
    fsdp_tokenizer_close(tokenizer);
}

/* Ids at random, most of them parts of characters. */
TEST(the_parts_of_a_stream_of_any_ids_are_the_text)
{
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    uint32_t state = 7;
    for (int round = 0; round < 50; round++) {
        int32_t ids[60];
        for (size_t i = 0; i < FSDP_LENGTH(ids); i++) {
            state = state * 1664525u + 1013904223u;
            ids[i] = (int32_t)((state >> 16) % 340u); /* some beyond the vocabulary */
        }
        check_stream(t, tokenizer, ids, FSDP_LENGTH(ids));
        CHECK_HERE();
    }
    fsdp_tokenizer_close(tokenizer);
}

TEST(a_part_comes_as_soon_as_it_cannot_change)
{
    static const char text[] = "xq \xF0\x9F\x98\x80z";
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    fsdp_text_stream stream;
    fsdp_token_list ids = {0};
    parts p = {0};
    ASSERT_OK(fsdp_tokenizer_encode_text(tokenizer, text, strlen(text), 0, &ids));
    fsdp_text_stream_init(&stream, tokenizer);
    ASSERT_OK(fsdp_text_stream_add(&stream, ids.ids[0], take_part, &p));
    ASSERT_INT(p.n, 1);
    for (size_t i = 1; i < ids.len; i++)
        ASSERT_OK(fsdp_text_stream_add(&stream, ids.ids[i], take_part, &p));
    ASSERT_STR(p.text.data, text);
    ASSERT(p.n < ids.len); /* the bytes of the character came together */
    fsdp_str_fini(&p.text);
    fsdp_token_list_fini(&ids);
    fsdp_text_stream_fini(&stream);
    fsdp_tokenizer_close(tokenizer);
}

/* A tokenizer of words and bytes, as SentencePiece's: ids 1 to 4 are bytes, 5 to 7 words, 8 is a
 * special token. */
static fsdp_tokenizer *open_words_and_bytes(fsdp_test *t)
{
    static const char json[] =
        "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":8,\"content\":\"</s>\",\"special\":true}],"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
        "{\"String\":\"\u2581\"},\"content\":\" "
        "\"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
        "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"
        "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,"
        "\"<0x51>\":1,\"<0x95>\":2,\"<0xC3>\":3,\"<0xA4>\":4,\"\u2581the\":5,\"\u2581cat\":6,"
        "\"\u2581sat\":7,\"</s>\":8}}}";
    fsdp_tokenizer *tokenizer = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizer.json", fsdp_test_dir(t));
    fsdp_status status = fsdp_file_write(path, json, sizeof json - 1);
    if (status == FSDP_OK)
        status = fsdp_tokenizer_open(path, &tokenizer);
    if (status != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return tokenizer;
}

/* Ids that are left out may be between the bytes of a character, also at the end. */
TEST(bytes_around_ids_that_are_left_out_come_together)
{
    fsdp_tokenizer *tokenizer = open_words_and_bytes(t);
    CHECK_HERE();
    static const int32_t rows[][6] = {
        {6, 1, 8, 2, 8, 5}, {3, 8, 4, 7, 1, 8}, {1, 99, 2, 99, 3, 4}, {5, 3, 99, 8, 4, 1}};
    uint32_t state = 5;
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++)
        check_stream(t, tokenizer, rows[i], FSDP_LENGTH(rows[i]));
    for (int round = 0; round < 50; round++) {
        int32_t ids[40];
        for (size_t i = 0; i < FSDP_LENGTH(ids); i++) {
            state = state * 1664525u + 1013904223u;
            ids[i] = (int32_t)((state >> 16) % 10u); /* 9 is beyond the vocabulary */
        }
        check_stream(t, tokenizer, ids, FSDP_LENGTH(ids));
        CHECK_HERE();
    }
    fsdp_tokenizer_close(tokenizer);
}

TEST(a_stream_goes_on_with_the_text_of_its_prompt)
{
    static const int32_t prompt[] = {8, 5, 6}, ids[] = {7, 5, 8};
    fsdp_tokenizer *tokenizer = open_words_and_bytes(t);
    CHECK_HERE();
    for (size_t n = 0; n <= FSDP_LENGTH(prompt); n++) {
        fsdp_text_stream stream;
        parts p = {0};
        fsdp_text_stream_init(&stream, tokenizer);
        ASSERT_OK(fsdp_text_stream_follow(&stream, prompt, n));
        for (size_t i = 0; i < FSDP_LENGTH(ids); i++)
            ASSERT_OK(fsdp_text_stream_add(&stream, ids[i], take_part, &p));
        ASSERT_OK(fsdp_text_stream_end(&stream, take_part, &p));
        ASSERT_STR(p.text.data, n > 1 ? " sat the" : "sat the");
        fsdp_str_fini(&p.text);
        fsdp_text_stream_fini(&stream);
    }
    fsdp_tokenizer_close(tokenizer);
}

/* --- conversations --- */

/* Set *text to the decoded prompt of a conversation. */
static fsdp_status prompt_of(const fsdp_chat_prompts *chat, const fsdp_tokenizer *tokenizer,
                             const char *row, char **text)
{
    fsdp_json *doc;
    fsdp_token_list ids = {0};
    FSDP_TRY(fsdp_json_parse("row", 1, row, strlen(row), &doc));
    fsdp_status status = fsdp_chat_prompt_encode(chat, tokenizer, fsdp_json_root(doc), &ids);
    if (status == FSDP_OK)
        status = fsdp_tokenizer_decode(tokenizer, ids.ids, ids.len, 0, text);
    fsdp_token_list_fini(&ids);
    fsdp_json_destroy(doc);
    return status;
}

#define USER "{\"role\": \"user\", \"content\": \"a\"}"
#define SAID(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"

typedef struct chat_case {
    const char *family, *row;
    bool go_on;
    const char *want, *error;
} chat_case;

static void check_prompt(fsdp_test *t, const fsdp_tokenizer *tokenizer, const chat_case *c)
{
    fsdp_chat_template *chat_template;
    char *text = NULL;
    ASSERT_OK(fsdp_chat_template_open(fsdp_test_path("fixtures/chat"), c->family, &chat_template));
    const fsdp_chat_prompts chat = {.chat_template = chat_template,
                                    .continue_final_message = c->go_on};
    const fsdp_status status = prompt_of(&chat, tokenizer, c->row, &text);
    if (c->want) {
        ASSERT_OK(status);
        ASSERT_STR(text, c->want);
    } else {
        ASSERT(status != FSDP_OK && strstr(fsdp_last_error(), c->error));
    }
    fsdp_text_free(text);
    fsdp_chat_template_close(chat_template);
}

/* The wanted texts are those of transformers' apply_chat_template() with add_generation_prompt or
 * continue_final_message. */
TEST(a_conversation_becomes_the_prompt_of_transformers)
{
    static const chat_case cases[] = {
        {"chatml", "{\"messages\": [" USER "]}", false,
         "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n", NULL},
        {"chatml", "{\"prompt\": [" USER "], \"completion\": [" SAID("x") "]}", false,
         "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n", NULL},
        {"chatml", "{\"messages\": [" USER ", " SAID("b ") "]}", true,
         "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb ", NULL},
        {"gemma", "{\"messages\": [" USER ", " SAID("b ") "]}", true,
         "<bos><start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\nb", NULL},
        {"chatml",
         "{\"messages\": [" USER ", {\"role\": \"assistant\", \"content\": "
         "[{\"type\": \"text\", \"text\": \"b\"}, {\"type\": \"image\"}]}]}",
         true, NULL, ""},
        {"chatml", "{\"messages\": [" USER ", " SAID("b") "]}", false, NULL,
         "--continue-final-message"},
        {"chatml", "{\"messages\": [{\"role\": \"assistant\", \"content\": null}]}", true, NULL,
         "continue_final_message"},
    };
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        if (i == 3 || i == 4) /* their texts depend on the special tokens of the model */
            continue;
        check_prompt(t, tokenizer, &cases[i]);
        CHECK_HERE();
    }
    fsdp_tokenizer_close(tokenizer);
}

TEST(an_answer_is_added_where_the_row_has_its_messages)
{
    static const struct {
        const char *row, *want;
        bool go_on;
    } cases[] = {
        {"{\"messages\": [" USER "], \"id\": 3}",
         "{\"messages\": [" USER ", " SAID("x") "], \"id\": 3}", false},
        {"{\"prompt\": [" USER "]}", "{\"prompt\": [" USER "], \"completion\": [" SAID("x") "]}",
         false},
        {"{\"messages\": [" SAID("b ") "]}", "{\"messages\": [" SAID("b x") "]}", true},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        const fsdp_chat_prompts chat = {.continue_final_message = cases[i].go_on};
        fsdp_json *doc;
        char *text;
        ASSERT_OK(fsdp_json_parse("row", 1, cases[i].row, strlen(cases[i].row), &doc));
        ASSERT_OK(fsdp_conversation_answer(&chat, fsdp_json_root(doc), "x"));
        ASSERT_OK(fsdp_json_print(doc, FSDP_JSON_LINE, &text, NULL));
        ASSERT_STR(text, cases[i].want);
        fsdp_free(text);
        fsdp_json_destroy(doc);
    }
}

/* </s> ends a turn of the template, and is a special token. */
TEST(the_end_of_a_turn_ends_answers)
{
    static const char zephyr[] = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}</s>\n"
                                 "{% endfor %}";
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    char path[512];
    snprintf(path, sizeof path, "%s/turn.jinja", fsdp_test_dir(t));
    FILE *file = fopen(path, "w");
    ASSERT(file && fputs(zephyr, file) >= 0 && fclose(file) == 0);
    fsdp_chat_template *chat_template;
    ASSERT_OK(fsdp_chat_template_open(NULL, path, &chat_template));
    const fsdp_chat_prompts chat = {.chat_template = chat_template};
    fsdp_generation_config config = {.n_eos = 1, .eos_token_ids = {300}};
    for (int round = 0; round < 2; round++) {
        ASSERT_OK(fsdp_chat_add_end_of_turn(&chat, tokenizer, &config));
        ASSERT_INT(config.n_eos, 2);
        ASSERT_INT(config.eos_token_ids[1], fsdp_tokenizer_token_id(tokenizer, "</s>"));
    }
    fsdp_chat_template_close(chat_template);
    fsdp_tokenizer_close(tokenizer);
}

/* --- memory --- */

/* A conversation is encoded and answered, a stop string is checked, and a text is streamed. */
static fsdp_status use_everything(const fsdp_chat_prompts *chat, const fsdp_tokenizer *tokenizer)
{
    static const int32_t ids[] = {75, 81, 300, 260, 83};
    fsdp_rule_texts texts = {.n_bytes = 0};
    fsdp_generation_config config = {.n_eos = 0};
    fsdp_stop_strings stop;
    fsdp_text_stream stream;
    fsdp_token_list prompt = {0};
    fsdp_json *doc = NULL;
    parts p = {0};
    bool ends;
    FSDP_TRY(fsdp_rule_texts_add(&texts, "zz", 2));
    FSDP_TRY(fsdp_stop_strings_init(&stop, tokenizer, &texts));
    FSDP_TRY(fsdp_stop_strings_check(&stop, ids, 4, ids[4], &ends));
    FSDP_TRY(fsdp_chat_add_end_of_turn(chat, tokenizer, &config));
    fsdp_text_stream_init(&stream, tokenizer);
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < FSDP_LENGTH(ids) && status == FSDP_OK; i++)
        status = fsdp_text_stream_add(&stream, ids[i], take_part, &p);
    if (status == FSDP_OK)
        status = fsdp_text_stream_end(&stream, take_part, &p);
    fsdp_text_stream_fini(&stream);
    if (status == FSDP_OK && p.text.failed)
        status = FSDP_ERR_NOMEM;
    fsdp_str_fini(&p.text);
    if (status == FSDP_OK)
        status = fsdp_conversation_create(chat, "a", 1, &doc);
    if (status == FSDP_OK)
        fsdp_conversation_add(fsdp_json_root(doc), "assistant", "b", 1);
    if (status == FSDP_OK)
        status = fsdp_json_check_built(doc);
    if (status == FSDP_OK)
        status = fsdp_chat_prompt_encode(chat, tokenizer, fsdp_json_root(doc), &prompt);
    if (status == FSDP_OK)
        status = fsdp_conversation_answer(chat, fsdp_json_root(doc), "x");
    fsdp_token_list_fini(&prompt);
    if (doc)
        fsdp_json_destroy(doc);
    return status;
}

TEST(memory_that_runs_out_in_a_conversation_is_an_error)
{
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    fsdp_chat_template *chat_template;
    ASSERT_OK(fsdp_chat_template_open(NULL, "chatml", &chat_template));
    const fsdp_chat_prompts chat = {
        .chat_template = chat_template, .system = "S", .continue_final_message = true};
    fsdp_status status = FSDP_ERR_NOMEM;
    long n = 0;
    while (status != FSDP_OK) {
        fsdp_alloc_fail_at(++n);
        status = use_everything(&chat, tokenizer);
        fsdp_alloc_fail_at(0);
        if (status != FSDP_OK)
            ASSERT_ERROR(status, FSDP_ERR_NOMEM, "");
    }
    ASSERT(n > 30);
    fsdp_chat_template_close(chat_template);
    fsdp_tokenizer_close(tokenizer);
}
