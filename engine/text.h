/* `assay-engine generate`, `tokenize`, `detokenize` and `arms`: the engine for a person at a terminal. */
#ifndef ASSAY_ENGINE_TEXT_H
#define ASSAY_ENGINE_TEXT_H

int generate_main(int argc, char **argv);
int tokenize_main(int argc, char **argv);
int detokenize_main(int argc, char **argv);
int arms_main(int argc, char **argv);

#endif
