#!/bin/sh
# Installs the servers of others in .providers/: LiteLLM and llama-cpp-python from the package
# index; and llama.cpp's library and own server, from the sources that llama-cpp-python ships.
# Needs a C++ compiler and cmake. PYTHON is the Python to use.
set -eu

requirements=tests/real_providers/requirements.txt
sources=.providers/sources
llama=$(grep ^llama_cpp_python $requirements)

"${PYTHON:-python3}" -m venv .providers
pip() { .providers/bin/python -m pip --quiet --disable-pip-version-check --no-cache-dir "$@"; }

# the library is built below, once for both servers
CMAKE_ARGS=-DLLAMA_BUILD=OFF pip install --no-binary llama_cpp_python -r $requirements

rm -rf $sources
mkdir $sources
pip download --no-deps --no-binary llama_cpp_python --dest $sources "$llama"
tar -xzf $sources/llama_cpp_python-*.tar.gz -C $sources --strip-components=1

# few and large units, and hardly optimized: the model is tiny
cmake -S $sources/vendor/llama.cpp -B .providers/build --log-level=WARNING \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O1 -DCMAKE_CXX_FLAGS_RELEASE=-O1 \
  -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=OFF -DGGML_LLAMAFILE=OFF \
  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF \
  -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF
nice cmake --build .providers/build --target llama-server --parallel "$(nproc)"
