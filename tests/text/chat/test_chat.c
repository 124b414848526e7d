/* Chat templates of model folders and of known families, and the assistant's texts.
 *
 * tests/fixtures/chat has templates with the constructs of Llama 2, Llama 3, Llama 3.1, Qwen2,
 * Qwen3, Mistral (v1, v3, Nemo), ChatML, Zephyr, Gemma, Phi-3 and DeepSeek-R1, and one that uses
 * macros, call blocks and generation blocks. expected.jsonl has conversations with the texts of
 * apply_chat_template() of transformers 5.24, made by `tools/check_chat.py --templates
 * tests/fixtures/chat --write tests/fixtures/chat/expected.jsonl`. */
#include <fsdp/chat.h>

#include <stdio.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/text/chat/chat.h"
#include "tests/test.h"

static void fixture(char path[600], const char *name)
{
    snprintf(path, 600, "%s", fsdp_test_path("fixtures/chat"));
    if (*name)
        snprintf(path + strlen(path), 600 - strlen(path), "/%s", name);
}

/* ---- the texts of transformers ---- */

static void check_spans(fsdp_test *t, fsdp_json_node wanted, const fsdp_chat_text *text)
{
    ASSERT_INT(fsdp_json_len(wanted), 2 * text->n_spans);
    for (size_t i = 0; i < text->n_spans; i++) {
        int64_t begin, end;
        ASSERT_OK(fsdp_json_get_i64(fsdp_json_at(wanted, 2 * i), NULL, 0, INT64_MAX, &begin));
        ASSERT_OK(fsdp_json_get_i64(fsdp_json_at(wanted, 2 * i + 1), NULL, 0, INT64_MAX, &end));
        ASSERT_INT(text->spans[i].begin, begin);
        ASSERT_INT(text->spans[i].end, end);
    }
}

static void check_row(fsdp_test *t, fsdp_json_node row)
{
    char folder[600], path[600];
    const char *name, *wanted;
    fsdp_chat_options options = {0};
    fsdp_chat_template *chat;
    fsdp_chat_text text = {0};
    ASSERT_OK(fsdp_json_get_str(row, "template", &name));
    ASSERT_OK(fsdp_json_get_str(row, "text", &wanted));
    ASSERT_OK(fsdp_json_get_bool(row, "generation_prompt", &options.add_generation_prompt));
    options.spans = fsdp_json_has(row, "spans") ? FSDP_CHAT_SPANS_ASSISTANT : FSDP_CHAT_SPANS_NONE;
    fixture(folder, "");
    fixture(path, name);
    ASSERT_OK(fsdp_chat_template_open(folder, path, &chat));
    if (fsdp_chat_render_node(chat, row, &options, &text) != FSDP_OK)
        FAIL("%s: %s", name, fsdp_last_error());
    if (strcmp(text.text, wanted) != 0)
        FAIL("%s: '%s' instead of '%s'", name, text.text, wanted);
    if (options.spans)
        check_spans(t, fsdp_json_find(row, "spans"), &text);
    fsdp_chat_text_fini(&text);
    fsdp_chat_template_close(chat);
}

TEST(conversations_become_the_texts_of_transformers)
{
    char path[600], *lines = NULL;
    size_t bytes;
    fixture(path, "expected.jsonl");
    ASSERT_OK(fsdp_file_read(path, 1 << 20, &lines, &bytes));
    int64_t n = 0;
    for (char *line = lines, *end; (end = strchr(line, '\n')); line = end + 1) {
        fsdp_json *doc;
        ASSERT_OK(fsdp_json_parse(path, ++n, line, (size_t)(end - line), &doc));
        check_row(t, fsdp_json_root(doc));
        fsdp_json_destroy(doc);
        CHECK_HERE();
    }
    fsdp_free(lines);
    ASSERT_INT(n, 84);
}

/* ---- known families ---- */

static const char conversation[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be kind.\"},"
    "{\"role\": \"user\", \"content\": \"Hi \"},"
    "{\"role\": \"assistant\", \"content\": \"Hello!\"},"
    "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"And\"},"
    "{\"type\": \"text\", \"text\": \" now?\"}]},"
    "{\"role\": \"assistant\", \"content\": \"Bye.\"}]}";

typedef struct family {
    const char *name, *text, *prompt; /* prompt: what a generation prompt adds */
    const char *answers[2];           /* the assistant's texts */
} family;

static const family families[] = {
    {"chatml",
     "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi <|im_end|>\n"
     "<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nAnd now?<|im_end|>\n"
     "<|im_start|>assistant\nBye.<|im_end|>\n",
     "<|im_start|>assistant\n",
     {"Hello!<|im_end|>\n", "Bye.<|im_end|>\n"}},
    {"qwen2.5",
     "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi <|im_end|>\n"
     "<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nAnd now?<|im_end|>\n"
     "<|im_start|>assistant\nBye.<|im_end|>\n",
     "<|im_start|>assistant\n",
     {"Hello!<|im_end|>\n", "Bye.<|im_end|>\n"}},
    {"llama3",
     "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nAnd now?<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\nBye.<|eot_id|>",
     "<|start_header_id|>assistant<|end_header_id|>\n\n",
     {"Hello!<|eot_id|>", "Bye.<|eot_id|>"}},
    {"mistral",
     "<s>[INST] Be kind.\n\nHi [/INST] Hello!</s>[INST] And now?[/INST] Bye.</s>",
     "",
     {" Hello!</s>", " Bye.</s>"}},
    {"zephyr",
     "<|system|>\nBe kind.</s>\n<|user|>\nHi </s>\n<|assistant|>\nHello!</s>\n<|user|>\nAnd now?"
     "</s>\n<|assistant|>\nBye.</s>\n",
     "<|assistant|>\n",
     {"Hello!</s>\n", "Bye.</s>\n"}},
    {"gemma",
     "<bos><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello!"
     "<end_of_turn>\n<start_of_turn>user\nAnd now?<end_of_turn>\n<start_of_turn>model\nBye."
     "<end_of_turn>\n",
     "<start_of_turn>model\n",
     {"Hello!<end_of_turn>\n", "Bye.<end_of_turn>\n"}},
};

static fsdp_status render(const fsdp_chat_template *chat, const char *json, bool spans, bool prompt,
                          fsdp_chat_text *text)
{
    const fsdp_chat_options options = {.spans =
                                           spans ? FSDP_CHAT_SPANS_ASSISTANT : FSDP_CHAT_SPANS_NONE,
                                       .add_generation_prompt = prompt};
    return fsdp_chat_render(chat, json, strlen(json), &options, text);
}

TEST(each_family_writes_its_form_and_marks_the_answers)
{
    size_t n = 0;
    for (; fsdp_chat_template_families()[n]; n++)
        ;
    ASSERT_INT(n, FSDP_LENGTH(families));
    for (size_t i = 0; i < n; i++) {
        const family *f = &families[i];
        fsdp_chat_template *chat;
        fsdp_chat_text text = {0}, prompt = {0};
        ASSERT_OK(fsdp_chat_template_open(NULL, f->name, &chat));
        ASSERT_STR(fsdp_chat_template_source(chat), f->name);
        ASSERT_OK(render(chat, conversation, true, false, &text));
        ASSERT_STR(text.text, f->text);
        ASSERT_INT(text.n_spans, 2);
        for (int k = 0; k < 2; k++) {
            ASSERT_INT(text.spans[k].end - text.spans[k].begin, strlen(f->answers[k]));
            ASSERT(!memcmp(text.text + text.spans[k].begin, f->answers[k], strlen(f->answers[k])));
        }
        ASSERT_OK(render(chat, conversation, false, true, &prompt));
        ASSERT_STR(prompt.text + text.bytes, f->prompt);
        ASSERT_INT(prompt.n_spans, 0);
        fsdp_chat_text_fini(&text);
        fsdp_chat_text_fini(&prompt);
        fsdp_chat_template_close(chat);
    }
}

/* Write `text` without {% generation %} and {% endgeneration %}, and with their dashes. */
static void without_generation(const char *text, char *out)
{
    while (*text) {
        const bool begins = strncmp(text, "{%- generation -%}", 18) == 0;
        const bool ends = strncmp(text, "{%- endgeneration -%}", 21) == 0;
        if (!begins && !ends) {
            *out++ = *text++;
            continue;
        }
        out = stpcpy(out, "{#- -#}");
        text += begins ? 18 : 21;
    }
    *out = 0;
}

/* The rule for templates without {% generation %} finds the same texts as the blocks do. */
TEST(comparing_renderings_finds_what_generation_blocks_mark)
{
    char path[600], source[16384];
    snprintf(path, sizeof path, "%s/plain.jinja", fsdp_test_dir(t));
    for (size_t i = 0; i < FSDP_LENGTH(families); i++) {
        fsdp_chat_template *chat, *plain;
        fsdp_chat_text text = {0}, other = {0};
        without_generation(fsdp_chat_family_template(families[i].name), source);
        ASSERT(!strstr(source, "generation -%}"));
        ASSERT_OK(fsdp_file_write(path, source, strlen(source)));
        ASSERT_OK(fsdp_chat_template_open(NULL, families[i].name, &chat));
        ASSERT_OK(fsdp_chat_template_open(NULL, path, &plain));
        ASSERT_OK(render(chat, conversation, true, false, &text));
        if (render(plain, conversation, true, false, &other) != FSDP_OK)
            FAIL("%s: %s", families[i].name, fsdp_last_error());
        ASSERT_STR(other.text, text.text);
        ASSERT_INT(other.n_spans, text.n_spans);
        ASSERT(!memcmp(other.spans, text.spans, text.n_spans * sizeof *text.spans));
        fsdp_chat_text_fini(&text);
        fsdp_chat_text_fini(&other);
        fsdp_chat_template_close(chat);
        fsdp_chat_template_close(plain);
    }
}

/* ---- where the assistant's texts cannot be found ---- */

static fsdp_status render_source(fsdp_test *t, const char *source, const char *json, bool spans,
                                 fsdp_chat_text *text)
{
    char path[600];
    fsdp_chat_template *chat = NULL;
    snprintf(path, sizeof path, "%s/own.jinja", fsdp_test_dir(t));
    fsdp_status status = fsdp_file_write(path, source, strlen(source));
    if (status == FSDP_OK)
        status = fsdp_chat_template_open(NULL, path, &chat);
    if (status == FSDP_OK)
        status = render(chat, json, spans, false, text);
    fsdp_chat_template_close(chat);
    return status;
}

#define EACH "{% for m in messages %}"
static const char two_turns[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"},{\"role\": \"assistant\", "
    "\"content\": \"b\"},{\"role\": \"user\", \"content\": \"c\"},{\"role\": \"assistant\", "
    "\"content\": \"d\"}]}";

TEST(a_template_that_rewrites_earlier_turns_is_refused_for_spans)
{
    fsdp_chat_text text = {0};
    ASSERT_ERROR(render_source(t, EACH "{{ m.content if not loop.last }}{{ '!' }}{% endfor %}",
                               two_turns, true, &text),
                 FSDP_ERR_UNSUPPORTED,
                 "messages[1]: where the assistant's text is in the whole text is not known: the "
                 "template writes the messages before it differently");
    ASSERT_ERROR(render_source(t,
                               EACH "{{ m.content ~ ('*' if m.role == 'assistant' and loop.last) }}"
                                    "{% endfor %}",
                               two_turns, true, &text),
                 FSDP_ERR_UNSUPPORTED,
                 "differently when other messages follow. Put {% generation %}");
    ASSERT_ERROR(render_source(t, "{{ messages[0].content }}",
                               "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}",
                               true, &text),
                 FSDP_ERR_UNSUPPORTED, "it is the first message");
    ASSERT(text.text == NULL);
}

/* A block in a macro is where the macro's text is written, unless other text of the macro comes
 * before it. transformers' mask would then be wrong. */
TEST(a_generation_block_whose_place_is_not_known_is_refused)
{
    fsdp_chat_text text = {0};
    ASSERT_OK(render_source(t,
                            "{% macro g(m) %}{% generation %}{{ m.content }}{% endgeneration %}"
                            "{% endmacro %}" EACH "{{ g(m) }}{% endfor %}",
                            two_turns, true, &text));
    ASSERT_INT(text.n_spans, 4);
    ASSERT_INT(text.spans[2].begin, 2);
    fsdp_chat_text_fini(&text);
    ASSERT_ERROR(render_source(t,
                               "\n{% macro g(m) %}x{% generation %}{{ m.content }}"
                               "{% endgeneration %}{% endmacro %}" EACH "{{ g(m) }}{% endfor %}",
                               two_turns, true, &text),
                 FSDP_ERR_UNSUPPORTED,
                 "line 2: the text of this {% generation %} block is not where");
    ASSERT(text.text == NULL);
}

/* ---- completions ---- */

static void check_completion(fsdp_test *t, const fsdp_chat_template *chat, const char *json,
                             const char *wanted)
{
    const fsdp_chat_options options = {.spans = FSDP_CHAT_SPANS_COMPLETION};
    fsdp_chat_text text = {0};
    ASSERT_OK(fsdp_chat_render(chat, json, strlen(json), &options, &text));
    ASSERT_INT(text.n_spans, 1);
    ASSERT_STR(text.text + text.spans[0].begin, wanted);
    ASSERT_INT(text.spans[0].end, text.bytes);
    fsdp_chat_text_fini(&text);
}

/* The completion of "prompt" and "completion" may have several turns; that of "messages" is the
 * last message. */
TEST(the_completion_is_what_follows_the_prompt)
{
    static const char parts[] =
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"completion\": "
        "[{\"role\": \"assistant\", \"content\": \"b\"}, {\"role\": \"user\", \"content\": "
        "\"c\"}, {\"role\": \"assistant\", \"content\": \"d\"}]}";
    static const char question[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}";
    static const char no_answer[] =
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"completion\": []}";
    const fsdp_chat_options options = {.spans = FSDP_CHAT_SPANS_COMPLETION};
    fsdp_chat_template *chat;
    fsdp_chat_text text = {0};
    ASSERT_OK(fsdp_chat_template_open(NULL, "zephyr", &chat));
    check_completion(t, chat, parts, "b</s>\n<|user|>\nc</s>\n<|assistant|>\nd</s>\n");
    check_completion(t, chat, two_turns, "d</s>\n");
    CHECK_HERE();
    ASSERT_ERROR(fsdp_chat_render(chat, question, strlen(question), &options, &text),
                 FSDP_ERR_FORMAT, "message 1 of 1 is not one");
    ASSERT_ERROR(fsdp_chat_render(chat, no_answer, strlen(no_answer), &options, &text),
                 FSDP_ERR_FORMAT, "the completion has no message");
    fsdp_chat_template_close(chat);
}

/* ---- conversations ---- */

TEST(what_is_no_conversation_is_refused_by_key)
{
    static const struct {
        const char *json, *message;
        fsdp_status status;
    } cases[] = {
        {"{}", "messages: missing", FSDP_ERR_NOT_FOUND},
        {"{\"messages\": []}", "messages: expected at least one message", FSDP_ERR_FORMAT},
        {"{\"messages\": \"Hi\"}", "messages: expected a list", FSDP_ERR_FORMAT},
        {"{\"messages\": [\"Hi\"]}", "messages[0]: expected an object", FSDP_ERR_FORMAT},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": {}}",
         "tools: expected a list", FSDP_ERR_FORMAT},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": \"[1\"}",
         "tools: line 1", FSDP_ERR_FORMAT},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"chat_template_kwargs\": "
         "{\"messages\": 1}}",
         "'messages' is not one of them", FSDP_ERR_INVALID},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}",
         "a part that is not a text", FSDP_ERR_INVALID},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{}]}",
         "takes no tools", FSDP_ERR_INVALID},
        {"{\"messages\": [{\"content\": \"a\"}]}", "has no attribute 'role'", FSDP_ERR_INVALID},
        {"[1]", "expected an object, found a list", FSDP_ERR_FORMAT},
        {"{", "conversation: line 1", FSDP_ERR_FORMAT},
    };
    fsdp_chat_template *chat;
    fsdp_chat_text text = {0};
    ASSERT_OK(fsdp_chat_template_open(NULL, "chatml", &chat));
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        const fsdp_status status = render(chat, cases[i].json, false, false, &text);
        if (status != cases[i].status || !strstr(fsdp_last_error(), cases[i].message))
            FAIL("%s: %s: %s", cases[i].json, fsdp_status_name(status), fsdp_last_error());
    }
    fsdp_chat_template_close(chat);
}

/* Keys of a message that are null are absent for the template; thoughts have three names; tools may
 * be a text; kwargs of the row come after those of the options. */
TEST(messages_and_variables_are_prepared_as_in_transformers)
{
    static const char source[] =
        "{{ messages[0].content is defined }} {{ messages[0].reasoning_content }} "
        "{{ messages[0].thinking }} {{ tools[0].a }} {{ documents is none }} {{ k }} {{ q }} "
        "{{ add_generation_prompt }} {{ bos_token is defined }}";
    static const char json[] =
        "{\"messages\": [{\"role\": \"assistant\", \"content\": null, \"reasoning\": \"r\"}], "
        "\"tools\": \"[{\\\"a\\\": 1}]\", \"chat_template_kwargs\": {\"k\": 2}}";
    const fsdp_chat_options options = {.kwargs = "{\"k\": 1, \"q\": [true]}"};
    char path[600];
    fsdp_chat_template *chat;
    fsdp_chat_text text = {0};
    snprintf(path, sizeof path, "%s/x.jinja", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, source, strlen(source)));
    ASSERT_OK(fsdp_chat_template_open(NULL, path, &chat));
    ASSERT_OK(fsdp_chat_render(chat, json, strlen(json), &options, &text));
    ASSERT_STR(text.text, "False r r 1 True 2 [True] False False");
    fsdp_chat_text_fini(&text);
    fsdp_chat_template_close(chat);
}

/* ---- folders ---- */

static void put(fsdp_test *t, const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_dir(t), name);
    ASSERT_OK(fsdp_file_write(path, text, strlen(text)));
}

static const char one[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}";
static const char one_with_tools[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{}]}";

static void check_text(fsdp_test *t, const char *name, const char *json, const char *wanted)
{
    fsdp_chat_template *chat;
    fsdp_chat_text text = {0};
    ASSERT_OK(fsdp_chat_template_open(fsdp_test_dir(t), name, &chat));
    ASSERT_OK(render(chat, json, false, false, &text));
    ASSERT_STR(text.text, wanted);
    fsdp_chat_text_fini(&text);
    fsdp_chat_template_close(chat);
}

/* Later files of this list go before earlier ones. */
TEST(templates_are_found_where_transformers_finds_them)
{
    char dir[600];
    fsdp_chat_template *chat = NULL;
    ASSERT_ERROR(fsdp_chat_template_open(fsdp_test_dir(t), NULL, &chat), FSDP_ERR_NOT_FOUND,
                 "no chat template (chat_template.jinja");
    put(t, "chat_template.json", "{\"chat_template\": \"legacy\"}");
    check_text(t, NULL, one, "legacy");
    CHECK_HERE();
    put(t, "tokenizer_config.json", "{\"chat_template\": \"{{ bos_token }}config\"}");
    check_text(t, NULL, one, "config");
    CHECK_HERE();
    put(t, "special_tokens_map.json", "{\"bos_token\": {\"content\": \"<B>\"}}");
    check_text(t, NULL, one, "<B>config");
    CHECK_HERE();
    put(t, "tokenizer_config.json",
        "{\"bos_token\": \"<b>\", \"chat_template\": [{\"name\": \"default\", \"template\": \"d\"},"
        "{\"name\": \"tool_use\", \"template\": \"{{ bos_token }}t\"},"
        "{\"name\": \"rag\", \"template\": \"r\"}]}");
    check_text(t, NULL, one, "d");
    check_text(t, NULL, one_with_tools, "<b>t");
    check_text(t, "rag", one_with_tools, "r");
    check_text(t, "zephyr", one, "<|user|>\na</s>\n");
    CHECK_HERE();
    snprintf(dir, sizeof dir, "%s/additional_chat_templates", fsdp_test_dir(t));
    ASSERT_OK(fsdp_directory_make(dir));
    put(t, "chat_template.jinja",
        "{#- A comment that is longer than what a program looks at. -#}\n{{ 'fi' }}le\n");
    put(t, "additional_chat_templates/rag.jinja", "more");
    check_text(t, NULL, one_with_tools, "file");
    check_text(t, "rag", one, "more");
}

TEST(errors_of_opening_name_file_and_line)
{
    fsdp_chat_template *chat = NULL;
    const char *dir = fsdp_test_dir(t);
    ASSERT_ERROR(fsdp_chat_template_open("/no/such", NULL, &chat), FSDP_ERR_NOT_FOUND, "/no/such");
    ASSERT_ERROR(fsdp_chat_template_open(NULL, "lama3", &chat), FSDP_ERR_NOT_FOUND,
                 "did you mean 'llama3'?");
    put(t, "tokenizer_config.json", "{\"chat_template\": 5}");
    CHECK_HERE();
    ASSERT_ERROR(fsdp_chat_template_open(dir, NULL, &chat), FSDP_ERR_FORMAT,
                 "tokenizer_config.json: chat_template: expected a string, found 5");
    put(t, "tokenizer_config.json", "{\"chat_template\": \"\\n\\n{{ x|pprint }}\"}");
    CHECK_HERE();
    ASSERT_ERROR(fsdp_chat_template_open(dir, NULL, &chat), FSDP_ERR_UNSUPPORTED,
                 "tokenizer_config.json: chat template: line 3: filter 'pprint' is not supported");
    put(t, "tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"x\"}]}");
    CHECK_HERE();
    ASSERT_ERROR(fsdp_chat_template_open(dir, NULL, &chat), FSDP_ERR_NOT_FOUND,
                 "the chat templates 'rag', but no 'default'");
    put(t, "tokenizer_config.json", "{\"bos_token\": 1, \"chat_template\": \"x\"}");
    CHECK_HERE();
    ASSERT_ERROR(fsdp_chat_template_open(dir, NULL, &chat), FSDP_ERR_FORMAT, "bos_token");
    put(t, "chat_template.jinja", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
    put(t, "tokenizer_config.json", "{}");
    CHECK_HERE();
    ASSERT_ERROR(fsdp_chat_template_open(dir, NULL, &chat), FSDP_ERR_FORMAT, "Git LFS");
    ASSERT(chat == NULL);
}

/* Each allocation fails once. */
static void fail_each_allocation(fsdp_test *t, const char *folder, const char *name)
{
    fsdp_status status = FSDP_ERR_NOMEM;
    for (long n = 1; status == FSDP_ERR_NOMEM; n++) {
        fsdp_chat_template *chat = NULL;
        fsdp_chat_text text = {0};
        fsdp_alloc_fail_at(n);
        status = fsdp_chat_template_open(folder, name, &chat);
        if (status == FSDP_OK)
            status = render(chat, conversation, true, true, &text);
        fsdp_alloc_fail_at(0);
        fsdp_chat_text_fini(&text);
        fsdp_chat_template_close(chat);
        ASSERT(n < 100000);
    }
    ASSERT_OK(status);
}

TEST(no_memory_leaks_when_an_allocation_fails)
{
    char folder[600], path[600];
    fixture(folder, "");
    fixture(path, "tool_types.jinja");
    fail_each_allocation(t, folder, path);
    CHECK_HERE();
    put(t, "tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"default\", \"template\": \"{% for m in messages %}x"
        "{% endfor %}\"}, {\"name\": \"tool_use\", \"template\": \"t\"}]}");
    CHECK_HERE();
    fail_each_allocation(t, fsdp_test_dir(t), NULL);
    CHECK_HERE();
    fail_each_allocation(t, NULL, "mistral");
}
