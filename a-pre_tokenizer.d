pre_tokenizer.o: src/text/pre_tokenizer.c src/text/pre_tokenizer.h \
 src/base/json.h include/fsdp/base.h src/text/aligned_text.h \
 src/text/utf8.h src/text/char_class.h src/base/alloc.h \
 src/text/byte_alphabet.h src/text/pre_tokenizer_ops.h src/text/regex.h \
 src/text/token_json.h src/text/word_splitter.h
src/text/pre_tokenizer.h:
src/base/json.h:
include/fsdp/base.h:
src/text/aligned_text.h:
src/text/utf8.h:
src/text/char_class.h:
src/base/alloc.h:
src/text/byte_alphabet.h:
src/text/pre_tokenizer_ops.h:
src/text/regex.h:
src/text/token_json.h:
src/text/word_splitter.h:
