/* libFuzzer over the files that `fsdp dashboard` reads: `make fuzz FUZZ_S=60`. The input is a file
 * of metrics, the file of a rank, run.json and a log at once. Whatever it is, the answers are JSON.
 */
#include <stdlib.h>
#include <sys/stat.h>

#include "src/base/alloc.h"
#include "src/base/json.h"
#include "src/dashboard/answer.h"
#include "tests/fuzz/folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void page_require(bool good)
{
    if (!good)
        abort();
}

/* Return true if JSON text has a capital letter outside its strings, as in NaN and Infinity. */
static bool has_capital(const char *text)
{
    bool in_string = false;
    for (; *text; text++) {
        if (*text == '"')
            in_string = !in_string;
        else if (in_string && *text == '\\' && text[1])
            text++;
        else if (!in_string && *text >= 'A' && *text <= 'Z')
            return true;
    }
    return false;
}

static void page_require_json(fsdp_str *answer)
{
    fsdp_json *doc = NULL;
    const size_t bytes = answer->len;
    char *text = fsdp_str_take(answer);
    page_require(text && fsdp_json_parse("answer", 1, text, bytes, &doc) == FSDP_OK);
    /* The parser takes Python's numbers as well, but a browser does not. */
    page_require(!has_capital(text));
    fsdp_json_destroy(doc);
    fsdp_free(text);
}

static void put_page_files(const uint8_t *data, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "%s/m.ranks", fuzz_folder());
    (void)mkdir(path, 0777); /* it is there already after the first input */
    fuzz_put("m.jsonl", data, bytes);
    fuzz_put("m.ranks/0.jsonl", data, bytes);
    fuzz_put("m.ranks/run.json", data, bytes);
    fuzz_put("a.log", data, bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fsdp_board *board;
    fsdp_str answer = {0};
    int pause_ms = 0;
    put_page_files(data, bytes);
    const char *folder = fuzz_folder();
    page_require(fsdp_board_create(&folder, 1, false, &board) == FSDP_OK);
    while (pause_ms < 100)
        page_require(fsdp_board_turn(board, &pause_ms) == FSDP_OK);
    fsdp_answer_runs(board, 0, &answer);
    page_require_json(&answer);
    for (int64_t id = 1; id <= 2; id++) { /* the run and the log, in either order */
        if (fsdp_answer_run(board, id, &answer) || fsdp_answer_log(board, id, &answer))
            page_require_json(&answer);
        else
            fsdp_str_fini(&answer);
    }
    fsdp_board_destroy(board);
    return 0;
}
