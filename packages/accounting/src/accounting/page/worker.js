// Answers a message [number, function, question as JSON] by [number, value], or by [number, null, mistake].

onmessage = ({ data: [id, name, text] }) => {
  try {
    postMessage([id, $plain(accounting[name](...(text ? [$json(text)] : [])))]);
  } catch (error) {
    postMessage([id, null, error.args ? String(error.args[0]) : `not computed: ${error.message}`]);
  }
};
