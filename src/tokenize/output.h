/* The output of `fsdp tokenize`. It is written to the folder OUTPUT.partial, together with a
 * journal (journal.h). When it is complete, it is moved to its final path. */
#pragma once
#include "src/tokenize/journal.h"

typedef enum fsdp_tokenize_format {
    FSDP_TOKENIZE_AUTO, /* NANOGPT if the path of the output ends in .bin, otherwise ARROW */
    FSDP_TOKENIZE_NANOGPT,
    FSDP_TOKENIZE_LLMC,
    FSDP_TOKENIZE_MEGATRON,
    /* for ARROW, the files hold spooled rows until fsdp_arrow_output_write() makes the folder; see
     * Note [Spooled rows] in encode.h */
    FSDP_TOKENIZE_ARROW,
} fsdp_tokenize_format;

typedef struct fsdp_output_options {
    const char *path;
    fsdp_tokenize_format format; /* not AUTO */
    int width;                   /* bytes of a token; 0 for ARROW */
    bool has_validation;
    bool resume, overwrite;
    fsdp_json_node settings; /* settings of the run; borrowed until the output is closed */
} fsdp_output_options;

typedef struct fsdp_token_output fsdp_token_output;

/* Return true if `path` ends in .bin, which means that the output is a single token file.
 * Otherwise, the output is a folder. */
bool fsdp_output_is_file(const char *path);

/* Begin the output or, with options->resume, continue the output of an interrupted run. Set *state
 * to what the interrupted run has written, or to zeros. If there is already an output, complete or
 * unfinished, return FSDP_ERR_INVALID, unless options->overwrite allows replacing it or
 * options->resume allows continuing it. */
FSDP_MUST_CHECK fsdp_status fsdp_output_begin(const fsdp_output_options *options,
                                              fsdp_tokenize_state *state, fsdp_token_output **out);
/* Append the rows of `encoded` to the files, and add their counts to *state. */
FSDP_MUST_CHECK fsdp_status fsdp_output_append(fsdp_token_output *output,
                                               const fsdp_encoded *encoded,
                                               fsdp_tokenize_state *state);
/* Write *state to the journal, so that a later run can continue from this state. *state must count
 * only rows that have been appended completely. A run with --resume first cuts off whatever the
 * files have beyond *state. */
FSDP_MUST_CHECK fsdp_status fsdp_output_save(fsdp_token_output *output,
                                             const fsdp_tokenize_state *state);
/* Move the complete files to their final path. Do not call this for ARROW. */
FSDP_MUST_CHECK fsdp_status fsdp_output_commit(fsdp_token_output *output,
                                               const fsdp_tokenize_state *state);
/* Return the path of the temporary file with the spooled rows of a part (ARROW). */
const char *fsdp_output_spool(const fsdp_token_output *output, int part);
/* Close the files. Remove OUTPUT.partial if `keep` is false or if no journal has been written.
 * Accepts NULL. */
void fsdp_output_close(fsdp_token_output *output, bool keep);
